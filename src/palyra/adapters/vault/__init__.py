"""The vault: secrets by name in one encrypted file, under a key in a file or a passphrase."""
