"""Keys: create one, whose secret is shown once; rotate and revoke it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import App


def test_a_key_from_its_creation_to_its_end(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    url = f"{serve(open_to_all=True)}keys"
    page = open_tab(url).page
    expect(page.get_by_text("No keys yet")).to_be_visible()
    page.get_by_role("button", name="New key…").click()
    page.get_by_label("Label").fill("<b>shop</b>")
    page.get_by_label("admin").uncheck()
    page.get_by_label("enqueue").check()
    page.get_by_label("Only these queues").fill("mail, a/b")
    page.get_by_label("Valid").select_option("90 days")
    page.get_by_label("Requests a second").fill("50")
    page.get_by_label("Why").fill("a new shop")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("heading", name="New key")).to_be_visible()
    secret = page.locator("pre").inner_text()
    (made,) = run(app.operator.keys.list())
    assert made.name in secret
    assert (made.label, made.scopes, made.queues, made.rate) == (
        "<b>shop</b>",
        ("enqueue",),
        ("mail", "a/b"),
        50,
    )

    page.get_by_role("link", name="All keys").click()
    row = page.get_by_role("row", name="<b>shop</b>")
    expect(row).to_contain_text("queues mail, a/b")
    assert secret not in page.content()
    row.get_by_role("button", name="Rotate…").click()
    page.get_by_label("The former secret stays valid for").locator("visible=true").select_option("7 days")
    page.get_by_role("button", name="Rotate", exact=True).click()
    expect(page.get_by_role("heading", name="New secret")).to_be_visible()
    assert page.locator("pre").inner_text() != secret

    page.get_by_role("link", name="All keys").click()
    expect(row).to_contain_text("two secrets")
    row.get_by_role("button", name="Revoke…").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_text("is revoked; servers refuse it")).to_be_visible()
    expect(row).to_have_count(0)
    page.get_by_role("link", name="Also revoked and expired").click()
    expect(row).to_contain_text("revoked")
    actions = [entry.action for entry in run(app.operator.audit()).items]
    assert actions == ["revoke", "rotate", "create"]


@pytest.mark.full
def test_a_form_that_is_sent_twice_creates_one_key(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    tab = open_tab(f"{serve(open_to_all=True)}keys")
    tab.expected.append("409")
    page = tab.page
    page.get_by_role("button", name="New key…").click()
    page.get_by_label("Label").fill("shop")
    first = page.evaluate("""async () => {
        const form = document.querySelector("#create-key form");
        const body = new URLSearchParams(new FormData(form));
        return (await fetch(form.action, { method: "POST", body })).status;
    }""")
    assert first == 200
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_text("was created before")).to_be_visible()
    assert len(run(app.operator.keys.list())) == 1
