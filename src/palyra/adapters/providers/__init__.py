"""Model providers, one file per wire format. Vendor types do not leave that file."""
