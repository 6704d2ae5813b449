"""Owners, keys and reference data; for keys of scope `admin`."""
