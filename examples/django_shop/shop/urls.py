"""The pages of the shop, and the dashboard for its staff at /windlass/dashboard/."""

from django.contrib import admin
from django.urls import include, path

from .views import place

urlpatterns = [
    path("orders/", place),
    path("admin/", admin.site.urls),
    path("windlass/", include("windlass.integrations.django.urls")),
]
