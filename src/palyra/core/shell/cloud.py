"""The large cloud tools: aws, az, gcloud. Owns: which of their commands only look and hand out no secret. Not: other services.

They have thousands of commands, named by one scheme each, so here the scheme is judged and not each name. Where a scheme is
broken (a `get` that saves a file, spends money or returns a credential), the command is named as an exception.
"""

import re

from palyra.core.shell.invocation import Invocation, short
from palyra.core.shell.judgement import Code
from palyra.core.shell.options import Line, OptionKind, OptionTable, option_table, read_line
from palyra.core.shell.programs import judge_option
from palyra.core.shell.tools import is_help, judge_before
from palyra.core.shell.words import Argument, plain

_NAME = re.compile(r"[a-z][a-z0-9-]*")

_AWS = option_table(
    leads_away="--endpoint-url --ca-bundle --cli-input-json --cli-input-yaml",
    discloses="--with-decryption --include-value --include-values",
    text="--region --profile --output --query --color --cli-read-timeout --cli-connect-timeout --cli-binary-format",
    flag="--no-cli-pager --debug --no-paginate --no-verify-ssl --no-sign-request --cli-auto-prompt "
    "--no-cli-auto-prompt",
)
_AWS_LOOKS = re.compile(
    r"(?:(?:batch|admin)-)?(?:describe|get|list|head|lookup|search|view|check|validate|estimate|preview|simulate|count)(?:-[a-z0-9-]+)?"
)
_AWS_MORE = frozenset(
    {
        ("dynamodb", "query"), ("dynamodb", "scan"), ("dynamodb", "transact-get-items"), ("s3", "ls"), ("logs", "tail"),
        ("logs", "filter-log-events"), ("rds", "download-db-log-file-portion"), ("configure", "list"),
        ("configure", "list-profiles"),
    }
)  # fmt: skip
# They save a body to a file that is named by a word of its own, or take a task from others.
_AWS_SAVES = re.compile(
    r"get-(?:object|object-torrent|job-output|export|sdk|media|media-for-fragment-list|clip|snapshot-block|thing-shadow|profile|"
    r"latest-configuration|configuration|package-version-asset|raw-message-content|map-[a-z-]+|work-unit-results|tile|read-set|"
    r"reference|image-frame|image-set-metadata|activity-task)"
)
_AWS_SECRET = re.compile(
    r".*(?:secret-value|password|credential|token|authorization|assume-role|session-token|federation|access-details|"
    r"decrypt|private-key|data-key|presign|signin-token|login-password).*"
)
_AWS_SECRET_LISTS = re.compile(r"(?:list|describe)-.*|get-account-password-policy|get-login-profile")

_AZ = option_table(
    text="--subscription --query -o --output --tenant",
    flag="--debug --verbose --only-show-errors -h --help",
    leads_away="--file-path --destination -f --file --template-file",
)
_AZ_LOOKS = re.compile(
    r"(?:list|show|exists|logs|tail|query|url|get-instance-view|get-versions|get-upgrades|check-health)|(?:list|show)-[a-z-]+"
)
_AZ_SECRETS = re.compile(
    r".*(?:key|credential|connection-string|secret|publishing|access-token|sas|password|profile).*"
)
_AZ_SECRET_GROUPS = frozenset(("secret", "credential", "keys", "appsettings", "connection-string"))
_AZ_DOES = frozenset(
    "create delete update set add remove start stop restart purge import export invoke run login upload copy move "
    "reset".split()
)
# They take words that are no command, so the last word need not be one.
_AZ_OTHERS = frozenset(
    "find config configure rest interactive ssh extension-run feedback login logout upgrade init".split()
)

_GCLOUD = option_table(
    text="--project --account --format --configuration --zone --region --verbosity --filter --limit --sort-by "
    "--page-size --location --billing-project --impersonate-service-account --trace-token",
    flag="--quiet -q --log-http --no-user-output-enabled --user-output-enabled",
    leads_away="--flags-file --access-token-file --credential-file-override --destination --output-file",
)
_GCLOUD_LOOKS = frozenset(
    "list describe get-iam-policy read get get-value list-grantable-roles get-ancestors ls log tail get-health "
    "get-server-config get-serial-port-output list-instances".split()
)
_GCLOUD_TRACKS = frozenset(("alpha", "beta", "preview"))
# Groups stand where they belong: below another group, `run` and `deploy` are commands.
_GCLOUD_GROUPS = frozenset(
    """
    access-approval access-context-manager active-directory ai ai-platform alloydb anthos api-gateway apigee app apphub artifacts
    asset assured auth backup-dr batch bigtable billing bms builds certificate-manager cloud-shell components composer compute
    config container data-catalog dataflow dataplex dataproc datastore deploy deployment-manager dns domains edge-cache emulators
    endpoints essential-contacts eventarc filestore firebase firestore functions gkehub healthcare iam iap identity ids
    immersive-stream infra-manager kms kuberun logging looker memcache metastore migration ml ml-engine monitoring netapp
    network-connectivity network-management network-security network-services notebooks org-policies organizations
    policy-intelligence policy-troubleshoot privateca projects publicca pubsub recaptcha recommender redis resource-manager
    resource-settings run scc scheduler secrets service-directory services source spanner speech sql storage tasks telco
    topic trace transcoder transfer vmware workbench workflows workspace-add-ons
    """.split()
)
_GCLOUD_SUBGROUPS = frozenset(
    """
    accelerator-types accounts addresses apis attestors autoscaling-policies backend-buckets backend-services backups buckets
    certificates channels clusters commitments configurations connections connectors containers databases deployments devices
    disk-types disks docker domain-mappings domains endpoint-policies endpoints entries environments exclusions executions
    external-vpn-gateways firewall-policies firewall-rules flags folders forwarding-rules functions gateway-security-policies
    gateways global-addresses groups health-checks http-health-checks https-health-checks hubs images instance-groups
    instance-templates instances interconnects jobs keyrings keys locations log-views logs machine-types managed managed-zones
    maps memberships metrics models namespaces network-endpoint-groups networks node-groups node-pools node-templates nodes
    objects operations org-policies org-policy os-config os-login packages packet-mirrorings patch-deployments peerings
    pipelines plans policies policy-tags ports profiles project-info projects public-keys queues quotas record-sets regions
    registrations releases repos repositories reservations resource-policies revisions roles rollouts routers routes schedules
    schemas secrets security-policies server-tls-policies service-accounts services settings shared-vpc sinks sites snapshots
    sole-tenancy spokes ssl-certificates ssl-policies streams subnets subscriptions tags target-grpc-proxies
    target-http-proxies target-https-proxies target-instances target-pools target-ssl-proxies target-tcp-proxies
    target-vpn-gateways targets taxonomies tcp templates tensorboards tiers topics tpus triggers trust-configs tunnels types
    unmanaged url-maps users values versions views vpc-access vpn-gateways vpn-tunnels web worker-pools workers workflows
    workload-identity-pools zones
    """.split()
)


def judge_aws(invocation: Invocation) -> None:
    values = invocation.values()
    is_named_help = values[-1:] == ("help",) and len(values) < 4 and all(map(_NAME.fullmatch, values))
    if is_help(invocation, frozenset()) or is_named_help:
        return
    line = _read(invocation, _AWS)
    words = [argument.value or "" for argument in line.operands]
    if len(words) > 1:
        judge_before(line, line.operands[1], invocation)
    service, operation = (*words[:2], "", "")[:2]
    is_look = bool(_AWS_LOOKS.fullmatch(operation)) and service not in ("configure", "sso", "sts", "s3")
    is_look = is_look or (service, operation) in _AWS_MORE or (service, operation) == ("sts", "get-caller-identity")
    if not is_look or not _NAME.fullmatch(service):
        invocation.ask(Code.SENDS, f"aws {short(service)} {short(operation)} is not known to only look")
    if _AWS_SAVES.fullmatch(operation):
        invocation.ask(Code.WRITES, f"aws {operation} may save a file")
    if _AWS_SECRET.fullmatch(operation) and not _AWS_SECRET_LISTS.fullmatch(operation):
        invocation.ask(Code.DISCLOSES, f"aws {operation} hands out a credential")
    for argument in invocation.arguments:
        file = re.search(r"(?:^|=)fileb?://(.*)", argument.value or "")
        if file:
            # What it is asked with. Who is asked is fixed by settings, so no word can send it elsewhere.
            invocation.reads(plain(file[1], argument))
    invocation.needs_network("amazonaws.com")


def judge_az(invocation: Invocation) -> None:
    if is_help(invocation, frozenset()):
        return
    line = _read(invocation, _AZ)
    words = _leading(invocation, line)
    command = words[-1] if words else ""
    if words == ["version"]:
        return
    is_look = bool(_AZ_LOOKS.fullmatch(command)) and len(words) > 1 and words[0] not in _AZ_OTHERS
    if not is_look or not all(_NAME.fullmatch(word) for word in words) or _AZ_DOES & set(words):
        invocation.ask(Code.SENDS, f"az {short(' '.join(words[:4]))} is not known to only look")
    is_secret = (_AZ_SECRET_GROUPS & set(words[:-1]) and command != "list") or words[-2:-1] == ["keys"]
    if is_secret or (_AZ_SECRETS.fullmatch(command)) or words[-2:] == ["appsettings", "list"]:
        invocation.ask(Code.DISCLOSES, f"az {short(' '.join(words[:4]))} hands out a secret")
    invocation.needs_network("management.azure.com")


def judge_gcloud(invocation: Invocation) -> None:
    """gcloud takes names after its command, so every word before the command must be one of its groups."""
    if is_help(invocation, frozenset()):
        return
    line = _read(invocation, _GCLOUD)
    operands = list(line.operands)
    if operands and operands[0].value in ("version", "help", "info"):
        return
    if operands and operands[0].value in _GCLOUD_TRACKS:
        operands.pop(0)
    group = operands.pop(0).value if operands else None
    while operands and operands[0].value in _GCLOUD_SUBGROUPS:
        operands.pop(0)
    if group not in _GCLOUD_GROUPS or not operands or operands[0].value not in _GCLOUD_LOOKS:
        invocation.ask(Code.SENDS, f"gcloud {short(' '.join(invocation.values()[:4]))} is not known to only look")
    else:
        judge_before(line, operands[0], invocation)
    invocation.needs_network("googleapis.com")


def _read(invocation: Invocation, table: OptionTable) -> Line:
    """Reads the line; says of each option what there is to say; and wants every word known."""
    line = read_line(table, invocation.arguments)
    for option in line.options:
        if option.kind is not OptionKind.UNKNOWN:
            judge_option(option, invocation, is_closed=False)
    invocation.is_known()
    return line


def _leading(invocation: Invocation, line: Line) -> list[str]:
    """The words up to the first option that is not a general one: az takes no names but through options."""
    words: list[str] = []
    rest = list(invocation.arguments)
    known = {option.argument: option for option in line.options if option.kind is not OptionKind.UNKNOWN}
    skip: set[Argument] = {value for option in known.values() for value in option.values}
    for argument in rest:
        if argument in known or argument in skip:
            continue
        if argument.lead.startswith("-"):
            break
        words.append(argument.value or "")
    return words
