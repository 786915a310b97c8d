//! Placeholder of the workspace skeleton.
