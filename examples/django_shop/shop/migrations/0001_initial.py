"""The table of orders."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Create it."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("item", models.CharField(max_length=100)),
                ("email", models.EmailField(max_length=254)),
                ("shipped_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
    )
