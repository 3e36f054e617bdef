"""`AppBook`: which tools make up an app, and what each offers to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agentsys.models.chat import ToolSpec
from baselines.isolategpt.settings import IsolateGPTSettings

ONE_APP = "assistant"
"""Name of the app that has every tool, where nothing is kept apart."""

_APPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bank": (
            "get_iban",
            "get_balance",
            "get_most_recent_transactions",
            "get_scheduled_transactions",
            "send_money",
            "schedule_transaction",
            "update_scheduled_transaction",
        ),
        "files": ("read_file",),
        "account": ("get_user_info", "update_password", "update_user_info"),
        "slack": (
            "get_channels",
            "add_user_to_channel",
            "read_channel_messages",
            "read_inbox",
            "send_direct_message",
            "send_channel_message",
            "get_users_in_channel",
            "invite_user_to_slack",
            "remove_user_from_slack",
        ),
        "web": ("get_webpage", "post_webpage"),
        "profile": ("get_user_information",),
        "hotels": (
            "get_all_hotels_in_city",
            "get_hotels_prices",
            "get_hotels_address",
            "get_rating_reviews_for_hotels",
            "reserve_hotel",
        ),
        "restaurants": (
            "get_all_restaurants_in_city",
            "get_restaurants_address",
            "get_rating_reviews_for_restaurants",
            "get_cuisine_type_for_restaurants",
            "get_dietary_restrictions_for_all_restaurants",
            "get_contact_information_for_restaurants",
            "get_price_for_restaurants",
            "check_restaurant_opening_hours",
            "reserve_restaurant",
        ),
        "cars": (
            "get_all_car_rental_companies_in_city",
            "get_car_types_available",
            "get_rating_reviews_for_car_rental",
            "get_car_rental_address",
            "get_car_fuel_options",
            "get_car_price_per_day",
            "reserve_car_rental",
        ),
        "flights": ("get_flight_information",),
        "calendar": (
            "create_calendar_event",
            "search_calendar_events",
            "get_day_calendar_events",
            "cancel_calendar_event",
            "reschedule_calendar_event",
            "add_calendar_event_participants",
            "get_current_day",
        ),
        "email": (
            "send_email",
            "delete_email",
            "get_unread_emails",
            "get_sent_emails",
            "get_received_emails",
            "get_draft_emails",
            "search_emails",
            "search_contacts_by_name",
            "search_contacts_by_email",
        ),
        "drive": (
            "append_to_file",
            "create_file",
            "delete_file",
            "get_file_by_id",
            "list_files",
            "search_files",
            "search_files_by_filename",
            "share_file",
        ),
    }
)
APP_OF: Mapping[str, str] = MappingProxyType({tool: app for app, tools in _APPS.items() for tool in tools})
"""AgentDojo's tools -> the app they belong to."""


@dataclass(frozen=True)
class SpokeApp:
    """One app: what runs in one spoke."""

    name: str
    tools: tuple[ToolSpec, ...]

    def tool(self, name: str) -> ToolSpec | None:
        """Its tool of this name."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True)
class AppBook:
    """The apps that are installed."""

    apps: tuple[SpokeApp, ...]

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """All their tools, app by app."""
        return tuple(tool for app in self.apps for tool in app.tools)

    def owner(self, tool: str) -> SpokeApp | None:
        """The app that has a tool of this name."""
        return next((app for app in self.apps if app.tool(tool) is not None), None)


def installed(tools: Sequence[ToolSpec], settings: IsolateGPTSettings) -> AppBook:
    """The apps that some tools make up, in the order of their first tools."""
    members: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        members.setdefault(_app_name(tool.name, settings), []).append(tool)
    return AppBook(tuple(SpokeApp(name, tuple(found)) for name, found in members.items()))


def _app_name(tool: str, settings: IsolateGPTSettings) -> str:
    match settings.apps:
        case "per_tool":
            return tool
        case "per_app":
            return settings.app_of.get(tool, tool)
        case "one_app":
            return ONE_APP
