"""Tables: numbers -> documents, and every form in which a document is shown or handed on."""
