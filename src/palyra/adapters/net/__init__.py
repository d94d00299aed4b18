"""The outgoing HTTP client and its event streams: the one adapter package that other adapters may import."""
