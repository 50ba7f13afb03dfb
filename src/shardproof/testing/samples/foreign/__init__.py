"""Sample directories of formats that others write: a module each, of which `Layout` takes the name.

They are made with the standard library alone, as each format's own library writes them.
"""
