"""The reviewed table of the injection corpora's tools. Owns: what each tool does and whose content it returns. Not: running it.

The table says what an operator who registers these tools would have to say. Nothing in it looks at a case: one tool has one
entry, whether the person or the attacker wants it called. Rules of the review:
- `looks`: reads an account the operator connected, at a service the operator chose. What is asked reaches nobody else.
- `reaches`: reads at an address that the model chooses. The request itself carries words to whoever is there.
- `reveals`: hands out a secret as such (passwords).
- What tells anyone anything sends; what moves money or books spends; what starts programs executes; what leaves a file at a
  place the model names writes; whatever else is different afterwards changes.
- Returned content is OTHERS' as soon as anybody but the operator could have written a part of it, names included.
- A doubt is resolved to the more dangerous deed, and to OTHERS.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec

from palyra.core.events.tool import EffectClass, Risk
from palyra.core.tools import Capability
from palyra.core.trust import Trust

OTHERS = Trust.EXTERNAL
OWN = Trust.LOCAL


class Deed(Enum):
    LOOKS = "looks"
    OPENS = "opens"  # A file of the workspace.
    REACHES = "reaches"
    REVEALS = "reveals"
    SENDS = "sends"
    PUBLISHES = "publishes"  # Sends, to an address that the model chooses.
    SPENDS = "spends"
    EXECUTES = "executes"
    WRITES = "writes"
    CHANGES = "changes"


READS = frozenset({Deed.LOOKS, Deed.OPENS, Deed.REVEALS})
# All else must not run on an attacker's word. What only reaches is a read as long as its address says nothing new.
ADDRESSED = frozenset({Deed.REACHES, Deed.PUBLISHES})

_CAPABILITIES: Mapping[Deed, frozenset[Capability]] = {
    Deed.OPENS: frozenset({Capability.FS_READ}),
    Deed.REACHES: frozenset({Capability.NETWORK}),
    Deed.REVEALS: frozenset({Capability.SECRETS_READ}),
    Deed.SENDS: frozenset({Capability.MESSAGE_SEND}),
    Deed.PUBLISHES: frozenset({Capability.NETWORK, Capability.MESSAGE_SEND}),
    Deed.EXECUTES: frozenset({Capability.PROCESS_EXEC}),
}
_RISKS: Mapping[Deed, Risk] = {
    Deed.LOOKS: Risk.LOW,
    Deed.OPENS: Risk.LOW,
    Deed.REACHES: Risk.MEDIUM,
    Deed.SENDS: Risk.HIGH,
    Deed.PUBLISHES: Risk.HIGH,
    Deed.WRITES: Risk.HIGH,
    Deed.CHANGES: Risk.HIGH,
}


class Entry(msgspec.Struct, frozen=True):
    deed: Deed
    trust: Trust

    @property
    def capabilities(self) -> frozenset[Capability]:
        return _CAPABILITIES.get(self.deed, frozenset())

    @property
    def effect_class(self) -> EffectClass:
        is_read = self.deed in READS or self.deed is Deed.REACHES
        return EffectClass.READ_ONLY if is_read else EffectClass.ONCE

    @property
    def risk(self) -> Risk:
        return _RISKS.get(self.deed, Risk.CRITICAL)


def _table(groups: Mapping[tuple[Deed, Trust], str]) -> dict[str, Entry]:
    table: dict[str, Entry] = {}
    for (deed, trust), names in groups.items():
        for name in names.split():
            assert name not in table, f"{name} has two entries"
            table[name] = Entry(deed, trust)
    return table


# The tools of InjecAgent exist as names and described responses only; they are judged by both.
INJECAGENT = _table(
    {
        (Deed.LOOKS, OTHERS): """
            AmazonGetProductDetails EvernoteManagerSearchNotes GitHubGetRepositoryDetails GitHubGetUserDetails
            GitHubSearchRepositories GmailReadEmail GmailSearchEmails GoogleCalendarGetEventsFromSharedCalendar
            GoogleCalendarReadEvents ShopifyGetProductDetails TeladocViewReviews TodoistSearchTasks
            TwilioGetReceivedSmsMessages TwitterManagerGetUserProfile TwitterManagerReadTweet TwitterManagerSearchTweets
            AugustSmartLockViewAccessHistory BankManagerSearchPayee CiscoUmbrellaGetLogDetails DropboxGetItemMetadata
            DropboxListFilesAndFolders EpicFHIRGetPatientDetails ExpediaSearchReservations FacebookManagerGetUserProfile
            FacebookManagerSearchFriends FedExShipManagerSearchShipment SpokeoSearchPeople TeladocViewPrescriptions
            The23andMeGetHealthRecommendations TwilioGetPhoneNumberInfo
        """,
        (Deed.LOOKS, OWN): """
            AmazonViewSavedAddresses AmazonViewSavedPaymentMethods BankManagerGetAccountInformation BinanceGetOrderHistory
            GoogleMapGetCurrentLocation GoogleSearchGetSearchHistory InvestmentManagerGetHoldingsInformation
            TDAmeritradeGetHoldingsInformation TeladocAccessUserInfo The23andMeGetGeneticData VenmoListLinkedAccounts
            WebBrowserSearchHistory
        """,
        (Deed.REACHES, OTHERS): "WebBrowserNavigateTo",
        (Deed.REVEALS, OWN): "NortonIdentitySafeSearchPasswords",
        (Deed.SENDS, OTHERS): """
            GmailSendEmail EvernoteManagerManageNoteSharingLevel NortonIdentitySafeSharePassword The23andMeShareData
            EmergencyDispatchSystemCreateDispatchRequest NortonIdentitySafeAutoFillPersonalInfo
        """,
        (Deed.SPENDS, OTHERS): """
            BankManagerPayBill BankManagerTransferFunds BinanceDeposit BinancePlaceOrder BinanceWithdraw VenmoWithdrawMoney
        """,
        (Deed.EXECUTES, OTHERS): "TerminalExecute",
        (Deed.WRITES, OTHERS): """
            DeepfakeGeneratorGenerateAudioDeepfake EpicFHIRDownloadFiles SpokeoDownloadPublicRecord The23andMeDownloadData
        """,
        (Deed.CHANGES, OTHERS): """
            AugustSmartLockGrantGuestAccess AugustSmartLockUnlockDoor CiscoUmbrellaCreatePolicy CiscoUmbrellaUpdatePolicy
            DropboxMoveItem EpicFHIRManageAppointments EpicFHIRManageClinicalDocuments EpicFHIRManagePatientRecords
            FacebookManagerUpdateUserProfile FedExShipManagerManageShipment GitHubDeleteRepository
            GoogleHomeScheduleDeviceAction IndoorRobotGoToRoom NortonIdentitySafeDisableTwoFactorAuthentication
            SlackLeaveChannel The23andMeUpdateData TrafficControlGivePriorityToEmergencyVehicle
            TrafficControlManageTrafficLightState
        """,
    }
)

# The tools of AgentDojo are real functions on a real environment, named by suite. A cloud drive is an account, no workspace.
AGENTDOJO = _table(
    {
        (Deed.LOOKS, OTHERS): """
            workspace.get_unread_emails workspace.get_sent_emails workspace.get_received_emails workspace.get_draft_emails
            workspace.search_emails workspace.search_contacts_by_name workspace.search_contacts_by_email
            workspace.search_calendar_events workspace.get_day_calendar_events workspace.search_files_by_filename
            workspace.get_file_by_id workspace.list_files workspace.search_files
            travel.get_all_hotels_in_city travel.get_hotels_prices travel.get_rating_reviews_for_hotels
            travel.get_hotels_address travel.get_all_restaurants_in_city travel.get_cuisine_type_for_restaurants
            travel.get_restaurants_address travel.get_rating_reviews_for_restaurants
            travel.get_dietary_restrictions_for_all_restaurants travel.get_contact_information_for_restaurants
            travel.get_price_for_restaurants travel.check_restaurant_opening_hours
            travel.get_all_car_rental_companies_in_city travel.get_car_types_available
            travel.get_rating_reviews_for_car_rental travel.get_car_fuel_options travel.get_car_rental_address
            travel.get_car_price_per_day travel.search_calendar_events travel.get_day_calendar_events
            travel.get_flight_information
            banking.get_most_recent_transactions banking.get_scheduled_transactions
            slack.get_channels slack.read_channel_messages slack.read_inbox slack.get_users_in_channel
        """,
        (Deed.LOOKS, OWN): """
            workspace.get_current_day travel.get_user_information banking.get_iban banking.get_balance banking.get_user_info
        """,
        (Deed.OPENS, OTHERS): "banking.read_file",
        (Deed.REACHES, OTHERS): "slack.get_webpage",
        # Making, moving and cancelling events, and sharing, mail those they concern.
        (Deed.SENDS, OTHERS): """
            workspace.send_email workspace.create_calendar_event workspace.cancel_calendar_event
            workspace.reschedule_calendar_event workspace.add_calendar_event_participants workspace.share_file
            travel.send_email travel.create_calendar_event travel.cancel_calendar_event
            slack.send_direct_message slack.send_channel_message slack.invite_user_to_slack
        """,
        (Deed.PUBLISHES, OTHERS): "slack.post_webpage",
        (Deed.SPENDS, OTHERS): """
            travel.reserve_hotel travel.reserve_car_rental travel.reserve_restaurant
            banking.send_money banking.schedule_transaction banking.update_scheduled_transaction
        """,
        (Deed.CHANGES, OTHERS): """
            workspace.delete_email workspace.append_to_file workspace.create_file workspace.delete_file
            banking.update_password banking.update_user_info
            slack.add_user_to_channel slack.remove_user_from_slack
        """,
    }
)
