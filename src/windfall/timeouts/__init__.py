"""When to give a silent job up (Timeouts): latencies in, a law and its best timeout out. Pure; numpy and scipy only.

laws         the law of a latency R: closed forms, the blend and scipy's laws, a sample; the curve of data (`steps`)
process      the resubmission process of a law: E_J, its variance, F_J and its quantiles
best         the best timeout for the mean, for a quantile, with a limited number of submissions
strategies   resubmit, submit several at once, submit another without giving up: one decision
fitting      censored observations, Kaplan-Meier, rho, maximum likelihood, tests of a fit, dependence, the report
learning     a bounded, forgetful sketch of one pool's latencies for the engine: the data (`memory`), its advice
"""
