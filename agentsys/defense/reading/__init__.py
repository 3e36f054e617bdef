"""Reading what models wrote: quotations, loose JSON, type names, closed formats, sections."""
