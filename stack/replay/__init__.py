"""Scenarios through the product: in process (`core_engine`) or through the running stack (`stack_engine`)."""
