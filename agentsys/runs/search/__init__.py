"""Searches: attacks that ask the defended agent, from plan to stored attempts."""
