"""`detaug nnunet verify`: is a training of nnU-Net on a user's data reproducible?"""
