//! `cargo xtask demo`: one whole join on this machine, for a person to watch.
//!
//! Runs a founder and an agent on loopback below a temporary directory that goes away at the end. The hardware is this
//! machine's; it is read, and nothing outside the temporary directory is written.

mod release;
mod upgrade;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::children::{self, Child, Interrupted, Signals};
use crate::lab::{self, Founder, Joiner, Listed, Mirror, Programs};
use crate::packages;
use crate::snapshot::{Step, View};
use crate::steps::{quoted, words};
use crate::terminal::Terminal;
use crate::workspace::{Profile, Workspace};

use self::release::Sizes;
use self::upgrade::{From, Plan, Upgraded, Wanted};

/// Longest wait for the pairing code. The agent's own part is a fraction of a second.
const REGISTER_WITHIN: Duration = Duration::from_secs(60);
/// Longest wait from the approval to the end.
const JOIN_WITHIN: Duration = Duration::from_secs(300);
/// How long a person sees the pairing code before the approval.
const SHOW_CODE: Duration = Duration::from_secs(6);
/// Between two lines about how far a step is.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// How long a person sees the last screen.
const SHOW_END: Duration = Duration::from_secs(5);

/// The console's exit code when a person left it by a key.
const LEFT_BY_KEY: i32 = 130;

/// One whole join on this machine.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave the approval to you; the command for a second terminal is printed.
    #[arg(long)]
    manual: bool,
    /// Plain lines instead of the console. Also what happens without a terminal.
    #[arg(long)]
    headless: bool,
    /// Install missing Debian packages without asking.
    #[arg(long)]
    yes: bool,
    /// Keep the temporary directory, with the logs of both sides.
    #[arg(long)]
    keep: bool,
    /// The joiner is of an older ISO and upgrades itself first; the release is made on the spot.
    #[arg(long)]
    upgrade: bool,
    /// Where it gets the release.
    #[arg(long, value_enum, default_value = "founder", requires = "upgrade")]
    from: From,
    /// The new OS does not come up the first time.
    #[arg(long, requires = "upgrade")]
    break_new_os: bool,
    /// How fast the release comes, 0 for as fast as it can; without it 20 with the console and 0 without.
    #[arg(long, value_name = "MIB/S", requires = "upgrade")]
    rate: Option<u32>,
}

/// What is running, and what was seen of it.
struct Demo {
    signals: Signals,
    founder: Founder,
    joiner: Joiner,
    agent: Child,
    console: Option<(Child, Terminal)>,
    /// The upgrade that is still to come, and its mirror, which runs to the end.
    plan: Option<Plan>,
    mirror: Option<Mirror>,
    /// An upgrade is under way, and none of it should fail.
    attempting: bool,
    seen: View,
    steps: Vec<Step>,
    /// When the last line about how far it is was said.
    told_at: Instant,
    held_back: Vec<String>,
}

/// Builds, joins, says how it went.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    packages::ensure(&[packages::BUILD], args.yes)?;
    let mut build = workspace.build_programs(Profile::Dev);
    println!("build: {}", words(&build));
    let begin = Instant::now();
    if !build.status().context("cargo build")?.success() {
        bail!("the build failed");
    }
    println!("build: done in {:.0} s", begin.elapsed().as_secs_f64());

    let signals = Signals::register()?;
    let mut dir =
        tempfile::Builder::new().prefix("stratum-demo-").tempdir().context("temporary directory")?;
    dir.disable_cleanup(args.keep);
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let programs = Programs::in_dir(workspace.bin_dir(Profile::Dev));
    let with_console = !args.headless && terminal;
    let wanted = args.upgrade.then_some(Wanted {
        sizes: Sizes::DEMO,
        from: args.from,
        break_new_os: args.break_new_os,
        // On loopback it would be over before a person has seen it.
        rate: args.rate.unwrap_or(if with_console { upgrade::TO_WATCH } else { 0 }),
    });
    let plan = wanted.map(|wanted| Plan::make(&programs, dir.path(), &wanted, &signals)).transpose();
    let result = plan
        .and_then(|plan| Demo::start(&programs, dir.path(), plan, &signals, with_console))
        .and_then(|mut demo| demo.join(args.manual));
    if args.keep {
        println!("kept: {}", dir.path().display());
    }
    result.map(|()| ExitCode::SUCCESS)
}

// === impl Demo ===

impl Demo {
    /// Founder, join code, join request, agent, and the console when a person watches.
    fn start(
        programs: &Programs,
        dir: &Path,
        plan: Option<Plan>,
        signals: &Signals,
        with_console: bool,
    ) -> Result<Self> {
        let args = plan.as_ref().map(Plan::founder_args).unwrap_or_default();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let founder = Founder::start(programs, dir, &args, signals)?;
        if !lab::is_loopback(founder.endpoint()) {
            bail!("the lab founder listens on {}, not on loopback", founder.endpoint());
        }
        println!("founder: listens on {}", founder.endpoint());
        let code = founder.join_code()?;
        println!("founder: made a join code (it is a secret, so it is not shown)");
        let mut joiner = Joiner::prepare(programs, dir, "joiner")?;
        if let Some(plan) = &plan {
            plan.prepare(&mut joiner)?;
        }
        let said = joiner.request(founder.endpoint(), &code)?;
        for line in said.lines() {
            println!("installer: {line}");
        }
        let agent = joiner.start_agent()?;
        println!("joiner: the agent runs (pid {}) below {}", agent.pid(), joiner.root().display());
        let mut demo = Self {
            signals: signals.clone(),
            founder,
            joiner,
            agent,
            console: None,
            plan,
            mirror: None,
            attempting: false,
            seen: View::default(),
            steps: Vec::new(),
            told_at: Instant::now(),
            held_back: Vec::new(),
        };
        if with_console {
            demo.wait_for_snapshot()?;
            demo.console = Some((demo.joiner.start_console()?, Terminal::save()));
        }
        Ok(demo)
    }

    /// From the start of the agent to `joined`. An error when it ends anywhere else.
    fn join(&mut self, manual: bool) -> Result<()> {
        let upgraded = self.upgrade()?;
        let registered =
            |view: &View| view.pairing.is_some() && view.join_id.is_some() && view.state == "pending";
        self.follow(registered, Some(REGISTER_WITHIN)).context("no pairing code")?;
        let id = self.seen.join_id.clone().unwrap_or_default();
        let shown = self.seen.pairing.clone().unwrap_or_default();
        let listed = self.listed(&id, &shown)?;
        if let Some(upgraded) = &upgraded {
            upgraded.check(&id, &shown)?;
            self.say(format!("joiner: {id} again, with the same pairing code {shown}"));
            self.hear_of_upgrade(&id)?;
        }
        if manual {
            self.tell_how_to_approve(&id, &shown)?;
        } else {
            if self.console.is_some() {
                self.show(SHOW_CODE)?;
            }
            self.say(format!("founder: the two pairing codes agree ({shown}), so it is approved"));
            self.founder.approve(&id, &shown)?;
        }
        let joined = |view: &View| view.state == "joined";
        self.follow(joined, (!manual).then_some(JOIN_WITHIN))?;
        self.finish(&listed, &shown, upgraded.as_ref())
    }

    /// The line of this machine in `joins list`, with the code that the machine shows.
    fn listed(&mut self, id: &str, shown: &str) -> Result<Listed> {
        let table = self.founder.list()?;
        let listed = Listed::find(&table, id)
            .with_context(|| format!("`joins list` has no line for {id}:\n{table}"))?;
        for line in table.lines() {
            self.say(format!("founder: {line}"));
        }
        if listed.pairing != shown {
            bail!("the joiner shows {shown}, the cluster {}: not approved", listed.pairing);
        }
        Ok(listed)
    }

    /// Waits until the snapshot satisfies `until`; says what changes on the way.
    fn follow(&mut self, until: impl Fn(&View) -> bool, within: Option<Duration>) -> Result<()> {
        let begin = Instant::now();
        loop {
            // Looked at before the snapshot, so that the last words of an agent that ends by design are read.
            let ended = self.agent.ended();
            self.look();
            if until(&self.seen) {
                return Ok(());
            }
            if self.seen.is_stuck() {
                let steps = self.seen.next.join(" ");
                bail!("the join stopped: {}. {steps}{}", self.seen.headline, self.joiner.log_tail());
            }
            if self.attempting && self.seen.waits_for_attempt {
                let why = self.seen.fault.clone().unwrap_or_default();
                let advice = self.seen.advice.join(" ");
                bail!("the upgrade failed: {why} {advice}{}", self.joiner.log_tail());
            }
            if ended {
                let how = children::ending(self.agent.stop());
                bail!("the agent ended with {how}{}", self.joiner.log_tail());
            }
            if self.founder.process.ended() {
                bail!("the lab founder ended{}", self.founder.log_tail());
            }
            if let Some((console, _)) = self.console.as_mut().filter(|(console, _)| console.ended()) {
                return match console.stop() {
                    // Left by Ctrl-C or Q: the console has the keyboard, so it is told first.
                    Some(status) if status.code() == Some(LEFT_BY_KEY) => Err(Interrupted.into()),
                    status => bail!("the console ended with {}", children::ending(status)),
                };
            }
            if within.is_some_and(|within| begin.elapsed() > within) {
                let seconds = begin.elapsed().as_secs();
                bail!("still {} after {seconds} s{}", self.seen.state, self.joiner.log_tail());
            }
            self.signals.tick()?;
        }
    }

    /// Takes in the newest snapshot and says what changed.
    fn look(&mut self) {
        let Some(mut view) = self.joiner.view() else { return };
        for step in &mut view.steps {
            if let Some(known) = self.steps.iter().find(|s| s.index == step.index && s.name == step.name) {
                *step = std::mem::take(step).after(known);
            }
        }
        // What a restart of the agent let it forget is no change.
        self.seen.steps.clone_from(&self.steps);
        let changes = view.changes_since(&self.seen);
        if !changes.is_empty() {
            self.told_at = Instant::now();
        }
        for line in changes {
            self.say(format!("joiner: {line}"));
        }
        // One that waits again after a restart was told when it was done.
        view.steps.retain(|step| step.status != "waiting");
        for step in &view.steps {
            if let Some(line) = step.progress().filter(|_| self.told_at.elapsed() >= PROGRESS_EVERY) {
                self.told_at = Instant::now();
                self.say(format!("joiner:   {line}"));
            }
            match self.steps.iter_mut().find(|s| s.index == step.index && s.name == step.name) {
                Some(known) => *known = step.clone(),
                None => self.steps.push(step.clone()),
            }
        }
        self.seen = view;
    }

    /// The last lines: what a person can check this run by.
    fn finish(&mut self, listed: &Listed, shown: &str, upgraded: Option<&Upgraded>) -> Result<()> {
        if self.console.is_some() {
            self.show(SHOW_END)?;
        }
        self.close_console();
        let status = self.agent.ended_within(Duration::from_secs(10), &self.signals)?;
        match status {
            Some(status) if status.success() => {}
            Some(_) => bail!("joined, but the agent ended with {}", children::ending(status)),
            None => bail!("joined, but the agent does not end"),
        }
        println!();
        if let Some(upgraded) = upgraded {
            upgraded.lines().iter().for_each(|line| println!("{line}"));
        }
        println!("pairing code on the joiner      {shown}");
        println!(
            "pairing code in `joins list`    {}  ({}, {} when listed)",
            listed.pairing, listed.id, listed.state
        );
        for step in &self.steps {
            println!("  {}", step.line());
        }
        println!("the joiner is                   {}", self.seen.state);
        match self.seen.registered_after_ms().or_else(|| upgraded?.registered_after_ms) {
            Some(ms) => println!("agent start to registered       {ms} ms (the agent's own clock)"),
            None => println!("agent start to registered       not in the agent's last snapshot"),
        }
        Ok(())
    }

    /// Tells the person what to type elsewhere. With the console, before it takes the screen back.
    fn tell_how_to_approve(&mut self, id: &str, shown: &str) -> Result<()> {
        let list = by_hand(&self.founder, &["admin", "nodes", "joins", "list"]);
        let approve = by_hand(&self.founder, &lab::approve_args(id, shown));
        let had_console = self.console.is_some();
        self.close_console();
        println!(
            "\nNow it is your turn. In a second terminal, look whether the cluster shows {shown} for {id}:"
        );
        println!("  {list}");
        println!("and when it does, approve it:");
        println!("  {approve}\n");
        if had_console {
            print!("Press Enter here to go back to the joiner's console. ");
            std::io::stdout().flush()?;
            self.wait_for_enter()?;
            self.console = Some((self.joiner.start_console()?, Terminal::save()));
        }
        Ok(())
    }

    fn wait_for_snapshot(&mut self) -> Result<()> {
        let begin = Instant::now();
        while self.joiner.view().is_none() {
            if self.agent.ended() || begin.elapsed() > REGISTER_WITHIN {
                bail!("the agent shows nothing{}", self.joiner.log_tail());
            }
            self.signals.tick()?;
        }
        Ok(())
    }

    /// Enter, or Ctrl-C. Read in a thread, because a read is restarted after a signal.
    fn wait_for_enter(&self) -> Result<()> {
        let reader = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()).map(drop));
        while !reader.is_finished() {
            self.signals.tick()?;
        }
        Ok(())
    }

    /// Lets a person look at the console for a while. One who closes it has seen enough.
    fn show(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end && self.console.as_ref().is_some_and(|(console, _)| !console.ended()) {
            self.look();
            self.signals.tick()?;
        }
        Ok(())
    }

    /// Ends the console, puts the terminal back, and says what was held back meanwhile.
    fn close_console(&mut self) {
        if let Some((mut console, terminal)) = self.console.take() {
            console.stop();
            terminal.restore();
        }
        for line in self.held_back.drain(..) {
            println!("{line}");
        }
    }

    /// One line for the person; held back while the console has the screen.
    fn say(&mut self, line: String) {
        if self.console.is_some() {
            self.held_back.push(line);
        } else {
            println!("{line}");
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.close_console();
        // The agent first: a founder that goes away would only make it log a fault.
        self.agent.stop();
        self.founder.process.stop();
        if let Some(mirror) = &mut self.mirror {
            mirror.process.stop();
        }
    }
}

/// A `stratumctl` command with its whole path, to be typed in another terminal.
fn by_hand(founder: &Founder, args: &[&str]) -> String {
    let command = founder.ctl(args);
    let program = quoted(&command.get_program().to_string_lossy());
    command.get_args().fold(program, |line, arg| line + " " + &quoted(&arg.to_string_lossy()))
}

#[cfg(test)]
#[path = "demo_tests.rs"]
mod tests;
