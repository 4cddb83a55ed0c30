"""Workloads of the reducer: jobs, loads to feed them with, and readers of public files.

Three jobs: word count with a threshold, word count by window, sessions of a click stream. What each
must give is what :func:`taut.workloads.reduce.fold.fold` computes in plain Python.
"""

from taut.workloads.reduce.draws import Zipf
from taut.workloads.reduce.jobs import Session, sessions, split_words, windowed_words, words
from taut.workloads.reduce.load import ClickLoad, KeyedRow, WordLoad, clicks_load, words_load
from taut.workloads.reduce.tweet_lines import tweets
from taut.workloads.reduce.world_cup_log import world_cup

__all__ = [
    "ClickLoad",
    "KeyedRow",
    "Session",
    "WordLoad",
    "Zipf",
    "clicks_load",
    "sessions",
    "split_words",
    "tweets",
    "windowed_words",
    "words",
    "words_load",
    "world_cup",
]
