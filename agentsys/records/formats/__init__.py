"""One module per producer of stored cases: what its files hold, read into `CaseRow`s."""
