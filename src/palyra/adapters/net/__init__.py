"""The outgoing HTTP client and its event streams: like `adapters.files`, a package that other adapters may import."""
