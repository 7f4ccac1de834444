"""Ready-made handlers: task types for common work, which an app includes with settings.

    from windlass import App, handlers

    app = App()
    deliver_webhook = app.include(handlers.Webhooks(secret="whsec_…"))
    deliver_webhook.enqueue(endpoint="https://example.org/hooks", body={"order": 7731})

`windlass up --handlers` runs all of them for producers in any language. See docs/handlers.md.
"""

from .email.handler import Email, Receipt
from .images.handler import Image, Images, Size
from .pages.extract import Selector
from .pages.handler import Page, Pages
from .reports.handler import Report, Reports
from .reports.sources import Query
from .requests import Requests, Response
from .storage import Storage
from .webhooks import Delivery, Endpoint, Webhooks

__all__ = [
    "Delivery",
    "Email",
    "Endpoint",
    "Image",
    "Images",
    "Page",
    "Pages",
    "Query",
    "Receipt",
    "Report",
    "Reports",
    "Requests",
    "Response",
    "Selector",
    "Size",
    "Storage",
    "Webhooks",
]
