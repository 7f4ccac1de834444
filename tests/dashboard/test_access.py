"""Signing in as a person does it, in a browser; and who acts where no key tells."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from tests.dashboard.test_accessibility import violations
from windlass import App


def test_a_person_signs_in_acts_and_signs_out(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    key = run(app.operator.keys.create("ann", scopes=["read", "operate"]))
    run(app.client.send("hello", {}, queue="mail"))
    tab = open_tab(f"{serve()}queues/mail")
    page = tab.page
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    for scheme, width in (("light", 1280), ("dark", 360)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        assert violations(page) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    page.get_by_label("API key").fill("wl_wrong")
    tab.expected.append("401")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").filter(has_text="unknown, expired or revoked")).to_be_visible()
    page.get_by_label("API key").fill(key.text)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="mail")).to_be_visible()
    tab.is_live()
    page.get_by_role("button", name="Pause…").click()
    expect(page.get_by_label("Who")).to_have_count(0)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("Queue mail is paused.")).to_be_visible()
    entry = run(app.operator.audit()).items[0]
    assert (entry.action, entry.who) == ("pause", f"key {key.key.name} (ann)")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.go_back()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_an_open_page_leads_to_signing_in_when_the_key_is_revoked(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    key = run(app.operator.keys.create("ann", scopes=["read"]))
    tab = open_tab(f"{serve()}queues")
    page = tab.page
    page.get_by_label("API key").fill(key.text)
    page.get_by_role("button", name="Sign in").click()
    tab.is_live()
    tab.expected.append("401")
    run(app.operator.keys.revoke(key.key.name))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_without_keys_people_say_who_they_are(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    run(app.client.send("hello", {}, queue="mail"))
    page = open_tab(f"{serve()}queues/mail").page
    page.get_by_role("button", name="Pause…").click()
    expect(page.get_by_label("Who")).not_to_have_value("")
    page.get_by_label("Who").fill("Ann \"<b>O'Hara")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("Queue mail is paused.")).to_be_visible()
    (entry,) = run(app.operator.audit()).items
    assert entry.who == "Ann \"<b>O'Hara"
    page.get_by_role("button", name="Resume…").click()
    expect(page.get_by_label("Who")).to_have_value("Ann \"<b>O'Hara")


def test_an_admin_sees_who_is_signed_in_and_signs_them_out(
    app: App, run: Run, open_tab: Callable[..., Tab], serve: Callable[..., str]
) -> None:
    url = serve()
    pages = []
    for name, scope in (("ann", "read"), ("root", "admin")):
        key = run(app.operator.keys.create(name, scopes=[scope]))
        tab = open_tab(f"{url}login")
        tab.expected.append("401")
        tab.page.get_by_label("API key").fill(key.text)
        tab.page.get_by_role("button", name="Sign in").click()
        expect(tab.page.get_by_role("heading", name="Overview")).to_be_visible()
        pages.append(tab.page)
    ann, root = pages
    root.goto(f"{url}keys")
    row = root.get_by_role("row", name="ann")
    expect(row).to_contain_text("1 signed in")
    row.get_by_role("button", name="Sign out…").click()
    root.get_by_role("button", name="Sign out everywhere").click()
    expect(root.get_by_text("1 login was ended.")).to_be_visible()
    expect(row).not_to_contain_text("signed in")
    expect(ann.get_by_role("heading", name="Sign in")).to_be_visible()
