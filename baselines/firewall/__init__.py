"""Firewalls: a model rewrites what goes to a tool (Minimizer), another what comes back (Sanitizer).

Rebuilt from arXiv 2510.05244, of which no code is published. What the paper leaves open, and how it is
settled here, is in docs/baselines/firewall.md.
"""

from baselines.firewall.firewalls import Firewall

__all__ = ["Firewall"]
