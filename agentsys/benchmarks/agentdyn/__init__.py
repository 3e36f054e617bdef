"""AgentDyn: shopping, github and dailylife, loaded from a checkout of its fork of agentdojo.

The fork has the installed package's name, so its modules are executed under a private one, without an effect on the
installed package or another checkout in the same process. Nothing of the fork is part of this package.
"""
