"""The aggregator as a service: questions in, noisy labels or abstentions out, and a budget that holds whatever crashes.

:class:`~pate.aggregators.service.desk.Service` is the whole of it without HTTP. ``app`` puts FastAPI before it.
"""
