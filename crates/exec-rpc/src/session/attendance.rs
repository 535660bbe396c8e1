//! Who is attached to a session: the client that drives it, and those that observe it. Pure, but for the way to their
//! connections, which it only keeps.
//!
//! ```text
//!   observer ── asks ──► asking ── driver hands over, or leaves; or it takes it ──► driver
//!       ▲ └──────────── refused ◄─┘                                                   │
//!       └──────────────────────────── another gets the drive ─────────────────────────┘
//! ```
//!
//! Which connection the session is attached to, and when it expires, is in the table of sessions; both are changed together,
//! under the lock of the server.

use std::sync::Weak;
use std::time::Instant;

use exec_wire::session::{AttachedClient, AttachedParams, DriveStatus, Role};
use tokio::sync::oneshot;

use super::ConnectionId;
use crate::connection::ConnectionShared;
use crate::limits::OBSERVERS;

/// A client that is attached.
#[derive(Debug)]
pub(crate) struct Attendee {
    pub(crate) id: ConnectionId,
    pub(crate) connection: Weak<ConnectionShared>,
    pub(crate) client_name: String,
    pub(crate) attached_at_ms: u64,
    /// Whether it has named a role, and so knows of others.
    pub(crate) is_told: bool,
    /// Where the answer goes that it waits for; if it asks for the drive.
    ask: Option<oneshot::Sender<DriveStatus>>,
}

#[derive(Debug, Default)]
pub(crate) struct Attendance {
    driver: Option<Attendee>,
    /// In the order in which they came. At most [`OBSERVERS`], and former drivers.
    observers: Vec<Attendee>,
    /// Without a driver: when the session expires.
    expires: Option<Instant>,
}

/// Why there is no drive for whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriveRefusal {
    /// The driver is a client that cannot be asked.
    DriverIsNotTold,
    /// The caller does not drive, and so has nothing to hand over.
    NotTheDriver,
    /// Nobody of that number observes the session.
    NoSuchObserver,
    /// The caller is no longer attached.
    NotAttached,
}

/// What became of a request for the drive.
#[derive(Debug)]
pub(crate) enum DriveRequestOutcome {
    /// The caller drives already.
    Drives,
    /// Nobody drives, so it can be had at once.
    Free,
    /// The driver was told; here comes its answer.
    Waits(oneshot::Receiver<DriveStatus>),
}

impl Attendee {
    pub(crate) fn new(
        id: ConnectionId,
        connection: Weak<ConnectionShared>,
        client_name: String,
        attached_at_ms: u64,
        is_told: bool,
    ) -> Self {
        Self { id, connection, client_name, attached_at_ms, is_told, ask: None }
    }

    fn answer(&mut self, status: DriveStatus) {
        if let Some(ask) = self.ask.take() {
            // Whoever asked may be gone.
            let _ = ask.send(status);
        }
    }

    fn to_wire(&self) -> AttachedClient {
        AttachedClient {
            id: self.id.0,
            client_name: self.client_name.clone(),
            attached_at_ms: self.attached_at_ms,
            is_told: self.is_told,
            asks_for_drive: self.ask.as_ref().is_some_and(|ask| !ask.is_closed()),
        }
    }
}

impl Attendance {
    /// A client has opened or resumed the session and drives it. Whoever drove before is no longer attached.
    pub(crate) fn set_driver(&mut self, driver: Attendee) {
        let can_be_asked = driver.is_told;
        self.driver = Some(driver);
        self.expires = None;
        if !can_be_asked {
            self.refuse_all();
        }
    }

    /// `false` if there are as many as there may be.
    pub(crate) fn add_observer(&mut self, observer: Attendee) -> bool {
        let has_room = self.observers.len() < OBSERVERS;
        if has_room {
            self.observers.push(observer);
        }
        has_room
    }

    /// A connection is gone. The result is whether it was attached. Without a driver, the session expires then.
    pub(crate) fn leave(&mut self, id: ConnectionId, expires: Option<Instant>) -> bool {
        if self.driver.as_ref().is_some_and(|driver| driver.id == id) {
            self.driver = None;
            self.expires = expires;
            return true;
        }
        let before = self.observers.len();
        self.observers.retain(|observer| observer.id != id);
        self.observers.len() < before
    }

    /// The first of those that wait for the drive, if nobody drives.
    pub(crate) fn heir(&self) -> Option<ConnectionId> {
        let asks = |observer: &&Attendee| observer.ask.as_ref().is_some_and(|ask| !ask.is_closed());
        if self.driver.is_some() { None } else { self.observers.iter().find(asks).map(|observer| observer.id) }
    }

    /// An observer asks for the drive. A second request replaces its first, which is answered as refused.
    pub(crate) fn ask(&mut self, id: ConnectionId) -> Result<DriveRequestOutcome, DriveRefusal> {
        match &self.driver {
            Some(driver) if driver.id == id => return Ok(DriveRequestOutcome::Drives),
            Some(driver) if !driver.is_told => return Err(DriveRefusal::DriverIsNotTold),
            Some(_) => {}
            None => return Ok(DriveRequestOutcome::Free),
        }
        let observer = self.observer(id).ok_or(DriveRefusal::NotAttached)?;
        observer.answer(DriveStatus::Refused);
        let (sender, answer) = oneshot::channel();
        observer.ask = Some(sender);
        Ok(DriveRequestOutcome::Waits(answer))
    }

    /// The driver refuses the drive to an observer.
    pub(crate) fn refuse(&mut self, caller: ConnectionId, observer: ConnectionId) -> Result<(), DriveRefusal> {
        self.require_driver(caller)?;
        self.observer(observer).ok_or(DriveRefusal::NoSuchObserver)?.answer(DriveStatus::Refused);
        Ok(())
    }

    pub(crate) fn require_driver(&self, caller: ConnectionId) -> Result<(), DriveRefusal> {
        match &self.driver {
            Some(driver) if driver.id == caller => Ok(()),
            _ => Err(DriveRefusal::NotTheDriver),
        }
    }

    /// An observer drives from now on. A driver that is told of others observes then; one that is not is no longer attached,
    /// and its connection, which must be closed, is the result.
    pub(crate) fn hand_over(&mut self, to: ConnectionId) -> Result<Option<ConnectionId>, DriveRefusal> {
        let at = self.observers.iter().position(|observer| observer.id == to).ok_or(DriveRefusal::NoSuchObserver)?;
        let mut driver = self.observers.remove(at);
        driver.answer(DriveStatus::Granted);
        self.expires = None;
        let can_be_asked = driver.is_told;
        let former = self.driver.replace(driver);
        if !can_be_asked {
            self.refuse_all();
        }
        match former {
            Some(former) if former.is_told => {
                self.observers.push(former);
                Ok(None)
            }
            Some(former) => Ok(Some(former.id)),
            None => Ok(None),
        }
    }

    fn refuse_all(&mut self) {
        for observer in &mut self.observers {
            observer.answer(DriveStatus::Refused);
        }
    }

    fn observer(&mut self, id: ConnectionId) -> Option<&mut Attendee> {
        self.observers.iter_mut().find(|observer| observer.id == id)
    }

    pub(crate) fn driver(&self) -> Option<AttachedClient> {
        self.driver.as_ref().map(Attendee::to_wire)
    }

    pub(crate) fn observer_count(&self) -> usize {
        self.observers.len()
    }

    pub(crate) fn observers(&self) -> impl Iterator<Item = &Attendee> {
        self.observers.iter()
    }

    /// Everybody who is told who is attached.
    pub(crate) fn told(&self) -> impl Iterator<Item = &Attendee> {
        self.driver.iter().chain(&self.observers).filter(|attendee| attendee.is_told)
    }

    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Weak<ConnectionShared>> {
        let mut attached = self.driver.iter().chain(&self.observers);
        attached.find(|attendee| attendee.id == id).map(|attendee| attendee.connection.clone())
    }

    /// The state as the connection `own` is told it.
    pub(crate) fn to_wire(&self, session_id: &str, own: ConnectionId, now: Instant) -> AttachedParams {
        let drives = self.driver.as_ref().is_some_and(|driver| driver.id == own);
        AttachedParams {
            session_id: session_id.to_owned(),
            own_id: own.0,
            role: if drives { Role::Driver } else { Role::Observer },
            driver: self.driver(),
            observers: self.observers.iter().map(Attendee::to_wire).collect(),
            expires_in_ms: self.expires.map(|until| until.saturating_duration_since(now).as_millis() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVER: ConnectionId = ConnectionId(1);
    const ONE: ConnectionId = ConnectionId(2);
    const OTHER: ConnectionId = ConnectionId(3);

    fn attendee(id: ConnectionId, is_told: bool) -> Attendee {
        Attendee::new(id, Weak::new(), format!("client {}", id.0), 0, is_told)
    }

    fn attendance(driver_is_told: bool) -> Attendance {
        let mut attendance = Attendance::default();
        attendance.set_driver(attendee(DRIVER, driver_is_told));
        assert!(attendance.add_observer(attendee(ONE, true)) && attendance.add_observer(attendee(OTHER, true)));
        attendance
    }

    fn waits(asked: Result<DriveRequestOutcome, DriveRefusal>) -> oneshot::Receiver<DriveStatus> {
        match asked {
            Ok(DriveRequestOutcome::Waits(answer)) => answer,
            other => panic!("it should wait: {other:?}"),
        }
    }

    fn roles(attendance: &Attendance) -> (Option<u64>, Vec<u64>) {
        let observers = attendance.observers().map(|observer| observer.id.0).collect();
        (attendance.driver().map(|driver| driver.id), observers)
    }

    #[test]
    fn of_two_that_ask_at_once_one_drives_and_the_other_still_asks() {
        let mut attendance = attendance(true);
        let (mut one, mut other) = (waits(attendance.ask(ONE)), waits(attendance.ask(OTHER)));
        assert_eq!(attendance.hand_over(OTHER), Ok(None));
        assert_eq!(roles(&attendance), (Some(3), vec![2, 1]), "the former driver observes");
        assert_eq!(other.try_recv(), Ok(DriveStatus::Granted));
        assert!(one.try_recv().is_err() && attendance.to_wire("s", ONE, Instant::now()).observers[0].asks_for_drive);
        assert_eq!(attendance.refuse(DRIVER, ONE), Err(DriveRefusal::NotTheDriver));
        assert_eq!(attendance.refuse(OTHER, ONE), Ok(()));
        assert_eq!(one.try_recv(), Ok(DriveStatus::Refused));
    }

    #[test]
    fn when_the_driver_vanishes_the_first_that_asked_inherits() {
        let mut attendance = attendance(true);
        let (gone, other) = (waits(attendance.ask(ONE)), waits(attendance.ask(OTHER)));
        drop(gone);
        assert_eq!(attendance.heir(), None, "somebody drives");
        assert!(attendance.leave(DRIVER, None));
        assert_eq!(attendance.heir(), Some(OTHER), "the first has given up");
        drop(other);
        assert_eq!(attendance.heir(), None);
        assert!(matches!(attendance.ask(ONE), Ok(DriveRequestOutcome::Free)));
    }

    #[test]
    fn a_client_that_knows_of_no_observers_is_not_asked_and_goes_when_the_drive_is_taken() {
        let mut attendance = attendance(false);
        assert_eq!(attendance.ask(ONE).err(), Some(DriveRefusal::DriverIsNotTold));
        assert_eq!(attendance.hand_over(ONE), Ok(Some(DRIVER)));
        assert_eq!(roles(&attendance), (Some(2), vec![3]));
        assert!(!attendance.leave(DRIVER, None), "it learns of its end late, and nobody else is concerned");
    }

    #[test]
    fn a_driver_that_cannot_be_asked_leaves_nobody_waiting() {
        let mut attendance = attendance(true);
        let mut one = waits(attendance.ask(ONE));
        attendance.set_driver(attendee(ConnectionId(9), false));
        assert_eq!(one.try_recv(), Ok(DriveStatus::Refused));
    }

    #[test]
    fn there_are_so_many_observers_and_no_more() {
        let mut attendance = Attendance::default();
        for number in 0..OBSERVERS as u64 {
            assert!(attendance.add_observer(attendee(ConnectionId(number), true)));
        }
        assert!(!attendance.add_observer(attendee(ConnectionId(1 << 40), true)));
        attendance.leave(ConnectionId(0), None);
        assert!(attendance.add_observer(attendee(ConnectionId(1 << 40), true)));
    }
}
