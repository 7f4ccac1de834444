"""Settings, from the environment."""

import os

DATABASE = os.environ.get("DATABASE_URL", "postgresql://localhost/shop")
SMTP = os.environ.get("SMTP_URL", "smtp://localhost:1025")
WORKER = os.environ.get("SHOP_WORKER") == "1"  # run tasks in the process of the web server, too
SECRET_KEY = os.environ.get("SECRET_KEY", "only-for-this-example")
STAFF_PASSWORD = os.environ.get("STAFF_PASSWORD", "only-for-this-example")
