"""Model providers, one file per wire format. Vendor types end there."""
