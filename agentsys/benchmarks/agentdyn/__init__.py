"""AgentDyn: shopping, github and dailylife, loaded from a checkout of its fork of agentdojo.

The fork bears the installed package's name, so its modules are executed under a private one: neither of the
two, nor another checkout in the same process, is changed by it. Nothing of the fork comes with this package.
"""
