"""The engine under random events: its invariants hold after every step, and its log gives the same state."""

from __future__ import annotations

from hypothesis import settings

from tests.support.engine.engine_machine import EngineMachine

EngineMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestEngine = EngineMachine.TestCase
