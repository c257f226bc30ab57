/* Made from tandem/wire/demands.py; its test says how. */

#ifndef TANDEM_NATIVE_DEMANDS_H
#define TANDEM_NATIVE_DEMANDS_H

/* In the names of properties that ask for a delay or a time. */
#define DELAY_HINT "DEL"

/* The ends of names of other properties that ask for something. */
static const char *const demanding[] = {
    "TRAN_MSG",
    "INNER_NUM",
    "TANDEM_ACK",
    "_SYS_MSG_PRIORITY_",
    "__LITE_TOPIC",
    "CLUSTER",
    "MSG_REGION",
    "TRACE_ON",
    "POP_CK",
};
enum { DEMANDING = sizeof demanding / sizeof *demanding };

#endif
