"""Imported by child processes of a worker: sets up Django, before they import handlers."""

import django
from django.apps import apps

if not apps.ready:  # a script may have done it
    django.setup()
