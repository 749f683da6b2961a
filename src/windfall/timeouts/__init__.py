"""When to give a silent job up (Timeouts): latencies in, a law and its best timeout out. Pure; numpy and scipy only.

laws, numeric, empirical   the law of a latency R: closed forms, the blend and scipy's laws, a sample
process                    the resubmission process of a law: E_J, its variance, F_J and its quantiles
best                       the best timeout for the mean, for a quantile, with a limited number of submissions
strategies                 resubmit, submit several at once, submit another without giving up: one decision
sample, estimate           censored observations, Kaplan-Meier, rho, maximum likelihood, the tests of a fit
dependence, report         where latencies are not independent, and all that a file of them says
steps                      the timeout that a survival curve from data advises: shared by `report` and `online`
memory, online             a bounded, forgetful sketch of one pool's latencies for the engine: the data, its advice
"""
