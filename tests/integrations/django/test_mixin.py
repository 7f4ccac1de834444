"""The mixin for Django's test cases."""

import io
import unittest

import pytest
from django.test import TransactionTestCase

from tests.integrations.django import shop_test_cases as cases


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("case", [cases.TestInTransaction, cases.TestWithCommits])
def test_a_project_tests_its_tasks(case: type[TransactionTestCase]) -> None:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    count = suite.countTestCases()
    log = io.StringIO()

    result = unittest.TextTestRunner(log).run(suite)

    assert result.wasSuccessful(), log.getvalue()
    assert result.testsRun == count > 8
