"""Tests of the browser tools with a real Chromium on pages of loopback."""
