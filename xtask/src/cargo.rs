//! What cargo knows of the workspace, and the programs that it builds.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::Failure;

/// What a target is, as far as it becomes a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Test,
    Example,
    Bench,
    Bin,
}

impl Kind {
    fn parse(text: &str) -> Option<Kind> {
        [Kind::Test, Kind::Example, Kind::Bench, Kind::Bin].into_iter().find(|kind| kind.as_str() == text)
    }

    /// cargo's word for it, also as the name of an option.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Test => "test",
            Kind::Example => "example",
            Kind::Bench => "bench",
            Kind::Bin => "bin",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something in the workspace that becomes a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BuildTarget {
    pub(crate) package: String,
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// The workspace as cargo sees it.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where cargo builds.
    pub(crate) target_folder: PathBuf,
    pub(crate) targets: Vec<BuildTarget>,
    /// Names of packages by cargo's identifiers.
    packages: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    targets: Vec<RawTarget>,
}

#[derive(Deserialize)]
struct RawTarget {
    name: String,
    kind: Vec<String>,
    #[serde(default)]
    crate_types: Vec<String>,
}

impl RawTarget {
    /// What it is, if it becomes a program; an example may be a library.
    fn program(&self) -> Option<Kind> {
        let kind = self.kind.iter().find_map(|kind| Kind::parse(kind))?;
        self.crate_types.iter().any(|crate_type| crate_type == "bin").then_some(kind)
    }
}

/// A line that cargo writes while it builds.
#[derive(Deserialize)]
struct Message {
    reason: String,
    package_id: Option<String>,
    target: Option<RawTarget>,
    executable: Option<PathBuf>,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn load() -> Result<Workspace, Failure> {
        let text = output(Command::new(cargo()).args(["metadata", "--no-deps", "--format-version=1"]))?;
        Workspace::parse(&text)
    }

    fn parse(text: &str) -> Result<Workspace, Failure> {
        let metadata: Metadata = serde_json::from_str(text)?;
        let mut targets = Vec::new();
        let mut packages = HashMap::new();
        for package in metadata.packages {
            for target in package.targets {
                if let Some(kind) = target.program() {
                    targets.push(BuildTarget { package: package.name.clone(), kind, name: target.name });
                }
            }
            packages.insert(package.id, package.name);
        }
        Ok(Workspace {
            root: metadata.workspace_root,
            target_folder: metadata.target_directory,
            targets,
            packages,
        })
    }

    /// Builds targets of one package; the programs, by target.
    pub(crate) fn build(
        &self,
        package: &str,
        targets: &[&BuildTarget],
        profile: &str,
        features: Option<&str>,
    ) -> Result<HashMap<BuildTarget, PathBuf>, Failure> {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root).args(["build", "--package", package, "--profile", profile]);
        command.arg("--message-format=json-render-diagnostics");
        if let Some(features) = features {
            command.args(["--features", features]);
        }
        for target in targets {
            command.arg(format!("--{}", target.kind)).arg(&target.name);
        }
        self.programs(&output(&mut command)?)
    }

    /// The programs among what cargo says that it built.
    fn programs(&self, messages: &str) -> Result<HashMap<BuildTarget, PathBuf>, Failure> {
        let mut programs = HashMap::new();
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Message = serde_json::from_str(line)?;
            let (Some(id), Some(target), Some(executable)) =
                (message.package_id, message.target, message.executable)
            else {
                continue;
            };
            let known = self.packages.get(&id).zip(target.program());
            if let (true, Some((package, kind))) = (message.reason == "compiler-artifact", known) {
                let target = BuildTarget { package: package.clone(), kind, name: target.name };
                programs.insert(target, executable);
            }
        }
        Ok(programs)
    }
}

/// The cargo that runs us.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// What a program writes; its errors are shown as they come.
fn output(command: &mut Command) -> Result<String, Failure> {
    let name = format!("{command:?}").replace('"', "");
    let failed = |what: String| Failure::Command { command: name.clone(), what };
    let output = command.stderr(Stdio::inherit()).output().map_err(|cause| failed(cause.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "packages": [{
            "id": "path+file:///w/crates/cuda#tilewright-cuda@0.1.0", "name": "tilewright-cuda", "version": "0.1.0",
            "targets": [
                {"kind": ["lib"], "crate_types": ["lib"], "name": "tilewright_cuda", "src_path": "/w/src/lib.rs"},
                {"kind": ["test"], "crate_types": ["bin"], "name": "gpu", "src_path": "/w/tests/gpu/main.rs"},
                {"kind": ["example"], "crate_types": ["cdylib"], "name": "dlpack", "src_path": "/w/examples/dlpack.rs"},
                {"kind": ["example"], "crate_types": ["bin"], "name": "graphs", "src_path": "/w/examples/graphs.rs"}
            ]
        }],
        "workspace_root": "/w", "target_directory": "/w/target", "version": 1
    }"#;

    fn target(kind: Kind, name: &str) -> BuildTarget {
        BuildTarget { package: "tilewright-cuda".to_owned(), kind, name: name.to_owned() }
    }

    #[test]
    fn metadata_gives_the_programs_and_no_libraries() {
        let workspace = Workspace::parse(METADATA).unwrap();
        assert_eq!(workspace.root, PathBuf::from("/w"));
        assert_eq!(workspace.targets, [target(Kind::Test, "gpu"), target(Kind::Example, "graphs")]);
        assert!(Workspace::parse("{}").is_err());
    }

    #[test]
    fn messages_give_the_programs_of_the_workspace() {
        let workspace = Workspace::parse(METADATA).unwrap();
        let id = "path+file:///w/crates/cuda#tilewright-cuda@0.1.0";
        let artifact = |id: &str, kind: &str, name: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","target":{{"kind":["{kind}"],"crate_types":["bin"],"name":"{name}"}},"executable":{executable},"fresh":true}}"#
            )
        };
        let messages = [
            artifact(id, "test", "gpu", r#""/w/target/release/deps/gpu-1""#),
            artifact(id, "lib", "tilewright_cuda", "null"),
            artifact("registry+x#other@1.0.0", "bin", "other", r#""/elsewhere""#),
            r#"{"reason":"build-script-executed","package_id":"x","out_dir":"/w/target"}"#.to_owned(),
            "a line of a build script".to_owned(),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let programs = workspace.programs(&messages.join("\n")).unwrap();
        let expected = [(target(Kind::Test, "gpu"), PathBuf::from("/w/target/release/deps/gpu-1"))];
        assert_eq!(programs, HashMap::from(expected));
    }
}
