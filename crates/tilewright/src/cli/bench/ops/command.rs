//! The commands of ops: one for each row of the [table](super::table), and what measures several.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};

use super::super::peer::Clock;
use super::Options;
use super::table::{ALL, Op, exponentials, norms};

/// What is to be measured, and how.
#[derive(Debug)]
pub(in crate::cli::bench) struct Command {
    pub(super) ops: Vec<&'static Op>,
    pub(super) clock: Clock,
    pub(super) options: Options,
}

/// The command that measures calls on few rows.
const SMALL: (&str, &str) = ("small", "Measure calls on few rows, with all that the host does for them");

/// What it measures.
static FEW_ROWS: [&Op; 3] = [&exponentials::SOFTMAX, &norms::RMSNORM, &norms::LAYERNORM];

/// What a command measures, by its name.
fn measured(name: &str) -> Option<(Vec<&'static Op>, Clock)> {
    match name == SMALL.0 {
        true => Some((FEW_ROWS.to_vec(), Clock::Host)),
        false => Op::named(name).map(|op| (vec![op], Clock::Device)),
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        let missing = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        let (ops, clock) = measured(name).ok_or_else(missing)?;
        Ok(Command { ops, clock, options: Options::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Command::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let all = ALL.iter().map(|op| (op.name, op.about)).chain([SMALL]);
        command.subcommands(
            all.map(|(name, about)| Options::augment_args(clap::Command::new(name)).about(about)),
        )
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Command::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        measured(name).is_some()
    }
}
