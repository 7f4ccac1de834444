"""The HTTP API and the dashboard: `path("windlass/", include("windlass.integrations.django.urls"))`."""

from django.urls import re_path

from .views import site

app_name = "windlass"
urlpatterns = [re_path(r"^(?P<path>.*)$", site, name="site")]
