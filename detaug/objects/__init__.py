"""Any Python object: walk it, describe it, fingerprint it, compare it, pickle it."""
