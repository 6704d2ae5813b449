"""Pure decisions of the finalizer: the alert's lifecycle, and what a polled batch of candidates changes."""
