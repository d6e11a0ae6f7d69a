; Checks EDN histories with Elle: of each its verdict, its anomalies, and the CPU seconds of the
; process for reading it, for checking it, and in all.
;
;     java -cp "$ELLE_CLASSPATH" clojure.main benchmarks/elle/check.clj list-append FILE...
(require '[clojure.edn :as edn]
         '[clojure.java.io :as io]
         '[elle.list-append :as list-append]
         '[elle.rw-register :as rw-register]
         '[jepsen.history :as history])

(defn cpu-s []
  (/ (.getProcessCpuTime (java.lang.management.ManagementFactory/getOperatingSystemMXBean)) 1e9))

(defn operations [file]
  (with-open [reader (java.io.PushbackReader. (io/reader file))]
    (into [] (take-while some?) (repeatedly #(edn/read {:eof nil} reader)))))

(let [[kind & files] *command-line-args*
      check ({"list-append" list-append/check "rw-register" rw-register/check} kind)]
  (doseq [file files]
    (let [began (cpu-s)
          history (history/history (operations file))
          read (cpu-s)
          result (check {:consistency-models [:strict-serializable]} history)
          checked (cpu-s)]
      (println (:valid? result) (sort (:anomaly-types result))
               (format "read %.2f check %.2f all %.2f" (- read began) (- checked read) checked))))
  (System/exit 0))
