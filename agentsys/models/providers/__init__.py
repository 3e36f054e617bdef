"""Providers: one module per vendor's SDK, one per wire format, and the HTTP client under all of them."""
