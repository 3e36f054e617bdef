"""A simulated victim: how a real model behaved in published runs, as probabilities to draw from.

A `VictimProfile` is data that `agentsys fit` wrote (room `agentsys.victims`); here it is read, checked
and turned into probabilities. The script keeps deciding what is shown, which tools are on offer and what a
defense withholds.
"""
