"""The engine under random events: its promises hold after every step, and its log tells the whole story."""

from __future__ import annotations

from hypothesis import settings

from tests.support.engine_machine import EngineMachine

EngineMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestEngine = EngineMachine.TestCase
