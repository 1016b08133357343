"""Commands that measure the product against published figures; not part of the package."""
