"""Configuration: what may be set (`schema`, `faults`) and where each value comes from (`load`)."""

from serving.config.faults import DelaySettings, FaultSettings
from serving.config.schema import (
    GroupingSettings,
    HttpReplicas,
    LocalReplicas,
    LogSettings,
    ModelSettings,
    ServerSettings,
    Settings,
)

__all__ = [
    "DelaySettings",
    "FaultSettings",
    "GroupingSettings",
    "HttpReplicas",
    "LocalReplicas",
    "LogSettings",
    "ModelSettings",
    "ServerSettings",
    "Settings",
]
