"""The configuration: what can be set, where it is read from, and what a project may change.

`load` merges the defaults, the user's file, the project's file, the environment and the flags. `data_dir` returns the
folder for the agent's data.
"""

from acp_agent.config.files import PERMISSION_FILE, config_file, data_dir, data_path, database_file
from acp_agent.config.layers import SettingKey, key_of, keys
from acp_agent.config.llm_settings import LlmSettings, ProviderSettings, ProviderType
from acp_agent.config.load import Flags, Loaded, ProjectLoosens, load
from acp_agent.config.rules import PermissionRule, RuleAction
from acp_agent.config.section import secret_name, secret_values, shown
from acp_agent.config.settings import (
    AcpSettings,
    AgentSettings,
    LoggingSettings,
    LogLevel,
    Settings,
    TerminalForm,
    config_schema,
)
from acp_agent.config.tool_settings import ShellSettings, SubstitutionMode, ToolSettings
from acp_agent.config.vendors import model_advice

__all__ = [
    "PERMISSION_FILE",
    "AcpSettings",
    "AgentSettings",
    "Flags",
    "LlmSettings",
    "Loaded",
    "LogLevel",
    "LoggingSettings",
    "PermissionRule",
    "ProjectLoosens",
    "ProviderSettings",
    "ProviderType",
    "RuleAction",
    "SettingKey",
    "Settings",
    "ShellSettings",
    "SubstitutionMode",
    "TerminalForm",
    "ToolSettings",
    "config_file",
    "config_schema",
    "data_dir",
    "data_path",
    "database_file",
    "key_of",
    "keys",
    "load",
    "model_advice",
    "secret_name",
    "secret_values",
    "shown",
]
