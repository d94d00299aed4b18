"""Tools that ask services: code hosts, clusters, containers. Owns: which of their commands only look. Not: applying it (tools).

Left out on purpose, though they change nothing at the service: what saves a file, opens a browser, prints credentials, or runs
a program that a file of the workspace names.
"""

from palyra.core.shell.tools import ToolRule, shared_tool, tool

GH = tool(
    """
    status version
    pr: list ls view diff checks status
    issue: list ls view status
    repo run workflow release gist: list ls view
    run: watch
    repo.deploy-key repo.autolink repo.license repo.gitignore: list ls view
    search: repos issues prs commits code
    cache secret variable label extension extensions ext alias ssh-key gpg-key org: list ls
    variable: get
    extension ext: search
    auth: status
    config: get list ls
    codespace cs: list ls view logs ports
    project: list ls view field-list item-list
    ruleset rs: list ls view check
    attestation at: verify trusted-root
    """,
    is_remote=True,
    local="alias config version",
    files="attestation at",
    forwards="exec",
    runs="--web -w --editor",
    discloses="--show-token -t --host -h",
    text="-R --repo --hostname",
)

_KUBECTL_TEXT = (
    "-n --namespace --context --cluster --user -o --output -l --selector --field-selector -c --container -v --v "
    "--request-timeout --since --since-time --tail --sort-by --template --revision -L --label-columns --api-version "
    "--api-group --chunk-size --limit"
)
KUBECTL = tool(
    """
    describe logs explain top diff api-resources api-versions version cluster-info completion options events
    cluster-info: dump
    get
    auth: can-i whoami
    rollout: status history
    config: view current-context get-contexts get-clusters get-users
    plugin: list
    """,
    is_remote=True,
    local="config completion options",
    forwards="exec run debug plugin",
    runs="--kubeconfig --profile --profile-output",
    leads_away="-s --server --certificate-authority --client-certificate --client-key --cache-dir --token",
    writes="--output-directory",
    discloses="--raw",
    path="-f --filename -k --kustomize",
    text=_KUBECTL_TEXT,
    flag="-A --all-namespaces -w --watch --help -h --version",
)

HELM = tool(
    """
    list ls status history hist version env lint template completion
    get: all values manifest notes hooks metadata
    show inspect: all chart values readme crds
    search: repo hub
    repo plugin dependency dep: list ls
    plugin: verify
    """,
    is_remote=True,
    local="lint version env completion",
    files="lint template show inspect dependency dep plugin install upgrade",
    forwards="plugin",
    writes="--output-dir",
    runs="--post-renderer --kubeconfig",
    leads_away="--set-file --registry-config --repository-config --repository-cache --kube-apiserver --kube-ca-file "
    "--kube-token --repo --key-file --cert-file --ca-file --keyring",
    path="-f --values",
    text="-n --namespace --kube-context -o --output --set --set-string --set-json --version --revision --max",
    flag="--debug",
)

_COMPOSE = "ps logs images top port events ls version config stats volumes"
_DOCKER = """
    ps images inspect logs top port stats history events version info search diff save export
    container: ls list ps inspect logs top port stats diff
    image: ls list inspect history tree exists
    volume network container: ls list inspect exists
    system: df events info
    context: ls list inspect show
    service: ls list ps inspect logs
    stack: ls list ps services config
    node: ls list ps inspect
    secret config plugin: ls list inspect
    buildx builder: ls inspect du version
    buildx.imagetools machine: inspect
    machine system.connection: list ls
    manifest trust: inspect
    pod: ps ls inspect stats top
"""
_DOCKER_OPTIONS = {
    "forwards": "run exec",
    "writes": "-o --output --cidfile",
    "leads_away": "-H --host --config --tlscacert --tlscert --tlskey --connection --url --identity --remote",
    "path": "-f --file --env-file --project-directory",
    "text": "-c --context -l --log-level --format --filter -n --tail --since --until --limit -p --project-name "
    "--profile",
    "flag": "-D --debug --help -h --version -v --tls",
}
DOCKER = shared_tool(f"{_DOCKER}\n    compose: {_COMPOSE}", _DOCKER_OPTIONS, is_remote=True)
COMPOSE = shared_tool(_COMPOSE, _DOCKER_OPTIONS, is_remote=True)

_AUTH0_THINGS = (
    "apps users logs actions apis roles orgs rules domains tenants qs quickstarts event-streams email.provider "
    "email.templates universal-login ul universal-login.templates universal-login.prompts ul.templates "
    "protection.brute-force-protection protection.bfp protection.suspicious-ip-throttling protection.sit "
    "protection.breached-password-detection protection.bpd protection.bot-detection orgs.members orgs.roles "
    "users.roles users.blocks roles.permissions apis.scopes apps.session-transfer log-streams network-acl "
    "token-exchange phone.provider"
)
AUTH0 = tool(
    f"""
    {_AUTH0_THINGS}: list ls show
    users: search search-by-email
    logs: tail
    actions: diff
    event-streams: stats
    """,
    is_remote=True,
    forwards="api",
    discloses="--reveal-secrets -r",
    text="--tenant --filter -q --query",
    flag="--no-input --no-color --debug --json --json-compact --csv --force",
)

# Only what starts no provider's program: those lie in the workspace.
TERRAFORM = tool(
    """
    version output providers metadata.functions
    workspace: show list
    state: list
    """,
    is_remote=True,
    is_single_dash=True,
    leads_away="-chdir",
    path="-state",
)

SERVICES: dict[str, ToolRule] = {
    "gh": GH,
    "kubectl": KUBECTL,
    "helm": HELM,
    "docker": DOCKER,
    "podman": DOCKER,
    "docker-compose": COMPOSE,
    "podman-compose": COMPOSE,
    "auth0": AUTH0,
    "terraform": TERRAFORM,
    "tofu": TERRAFORM,
}
