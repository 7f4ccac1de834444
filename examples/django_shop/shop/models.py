"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    """An order of a customer."""

    item = models.CharField(max_length=100)
    email = models.EmailField()
    shipped_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}: {self.item}"
