"""What keeps a batch pure: equal copies of what can change, and every generator in them seeded from
the batch.
"""
