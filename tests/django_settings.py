"""Django in the process of the tests: it can be configured once, so all of them share these settings."""

import django
from django.conf import settings


def configure() -> None:
    """Configure Django, unless it is."""
    if not settings.configured:
        settings.configure(USE_TZ=False, TIME_ZONE="America/New_York", SECRET_KEY="s" * 50)
        django.setup()
